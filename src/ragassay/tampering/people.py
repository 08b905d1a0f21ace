"""Names of persons: what is drawn, what is understood, and what no person is called.

All lists are our own.
"""

from __future__ import annotations

from ragassay.tampering.words import entries, word_set

MALE = entries(
    """
    Adam, Adrian, Alan, Albert, Alexander, Alfred, Andrew, Anthony, Arthur, Benjamin, Bernard,
    Brian, Carl, Charles, Christopher, Colin, Daniel, David, Dennis, Derek, Donald, Douglas,
    Edmund, Edward, Eric, Ernest, Francis, Frank, Frederick, Gabriel, Geoffrey, George, Gerald,
    Graham, Gregory, Harold, Harry, Henry, Herbert, Howard, Hugh, Ian, Isaac, Jack, Jacob, James,
    Jason, Jeffrey, John, Jonathan, Joseph, Julian, Keith, Kenneth, Kevin, Lawrence, Leonard,
    Louis, Malcolm, Mark, Martin, Matthew, Michael, Nathan, Neil, Nicholas, Oliver, Oscar,
    Patrick, Paul, Peter, Philip, Ralph, Raymond, Richard, Robert, Roger, Ronald, Samuel, Scott,
    Simon, Stanley, Stephen, Steven, Theodore, Thomas, Timothy, Victor, Vincent, Walter, William
    """
)
FEMALE = entries(
    """
    Agnes, Alice, Amanda, Amy, Andrea, Angela, Ann, Anna, Anne, Barbara, Beatrice, Brenda,
    Carol, Caroline, Catherine, Charlotte, Christina, Clara, Claire, Cynthia, Deborah, Denise,
    Diana, Diane, Dorothy, Edith, Eleanor, Elizabeth, Ellen, Emily, Emma, Esther, Ethel, Evelyn,
    Florence, Frances, Gloria, Grace, Hannah, Harriet, Heather, Helen, Irene, Isabel, Jane,
    Janet, Jean, Jennifer, Jessica, Joan, Josephine, Joyce, Judith, Julia, Karen, Katherine,
    Laura, Linda, Lisa, Louise, Lucy, Margaret, Maria, Marie, Martha, Mary, Mildred, Miriam,
    Nancy, Natalie, Nicole, Nora, Olivia, Pamela, Patricia, Rachel, Rebecca, Rosemary, Ruth,
    Sally, Sandra, Sarah, Sharon, Sophie, Stephanie, Susan, Sylvia, Teresa, Ursula, Vera,
    Veronica, Virginia, Vivian
    """
)
# Given names that are understood, and not drawn.
ALSO_MALE = word_set(
    """
    Aaron Abraham Alex Antonio Ben Bert Bill Billy Bob Bobby Brad Bradley Bruce Bryan Cameron Carlos
    Chad Charlie Chris Christian Clint Craig Dan Danny Darren Dave Dean Dick Don Doug Dylan Ed Eddie
    Elijah Elliot Ethan Evan Fred Gary Gavin Glenn Greg Hans Hugo Ivan Jake Jay Jeff Jeremy Jerry
    Jesse Jim Jimmy Joe Joel Joey Johnny Jon Jordan Jose Juan Justin Karl Ken Kurt Kyle Larry Lee
    Leo Liam Logan Luis Lou Luke Marcus Mario Mason Matt Max Mike Mitchell Nate Nick Noah Noel
    Norman Otto Pedro Pete Phil Pierre Rick Rob Rod Ron Ross Roy Russell Ryan Sam Sean Shane Shaun
    Spencer Steve Ted Tim Todd Tom Tommy Tony Travis Tyler Wayne Will Zachary Akshay Anil Arjun Raj
    Rajiv Ravi Sunil Vijay Mohamed Muhammad Ali Ahmed Hassan Omar Ibrahim Hiroshi Kenji Wei Jun
    """
)
ALSO_FEMALE = word_set(
    """
    Abigail Aimee Alison Allison Ann Annie April Ashlee Ava Beth Betty Beverly Bonnie Bridget Carly
    Carrie Cate Cathy Chelsea Cheryl Chloe Courtney Daisy Debbie Demi Dolly Doris Elaine Ella Erin
    Eva Faith Fiona Gail Gwen Gwyneth Hailey Hayley Heidi Hilary Hillary Holly Hope Ingrid Iris
    Ivy Jackie Jamie-Lynn Janice Jen Jenny Jill Joanne Jodie Judy Julie Kaley Kate Kathleen Kathy
    Katie Katy Kelly Kerry Kim Kimberly Kirsten Kristen Kylie Lauren Leah Leigh Liz Lily Lindsay
    Lindsey Lois Lynn Mandy Megan Meghan Melanie Meryl Mia Michelle Miley Molly Naomi Nicki Paige
    Peggy Penelope Phoebe Priscilla Raveena Reese Renee Robin Rosie Sadie Scarlett Shannon Shirley
    Sienna Sigourney Smriti Stacy Sue Suzanne Tilda Tina Tracy Wendy Whitney Winona Yoko Zoe
    """
)
SURNAMES = entries(
    """
    Abbott, Ashworth, Atkins, Barlow, Beckett, Bennett, Blackwell, Bradshaw, Brennan, Calloway,
    Carmichael, Chandler, Colburn, Conway, Crawford, Dalton, Davenport, Donovan, Drummond,
    Eastwick, Ellison, Fairbanks, Fenwick, Fielding, Fletcher, Forsyth, Gallagher, Garland,
    Gibbons, Goodwin, Hadley, Halloran, Harding, Hathaway, Hollis, Hargrove, Ingram, Jarvis,
    Keating, Kendrick, Kirkwood, Lambert, Langley, Lindgren, Lockhart, Mallory, Marlowe, Maddox,
    Merrick, Mercer, Norwood, Oakley, Osborne, Paxton, Pemberton, Prescott, Quinlan, Radcliffe,
    Ramsey, Redmond, Rowland, Sandoval, Sawyer, Sheridan, Sinclair, Stafford, Sterling, Talbot,
    Thornton, Tillman, Underwood, Vaughan, Wakefield, Wendell, Whitaker, Winslow, Wyatt, Yardley
    """
)
TITLES = word_set(
    """
    mr. mrs. ms. dr. sir lord lady president senator governor king queen prince princess pope
    general colonel captain professor judge mayor bishop director actor actress singer author
    """
)
# Words that no person is called by, though the model calls what has them a person.
NOT_IN_PERSONS = word_set(
    """
    academy act airport album april august award awards bay best billboard book boys bridge
    castle century championship chart church city club college corporation county cup day days
    december district emmy empire festival film force fund game games girls globe grammy guild
    hall hill hotel house hundred island january july june lake league love magazine man march
    monday month mount movie museum music my night november october olympic olympics park party
    place play prize records river road rock rose saturday school season september series show
    song songs square st. stadium star street sunday tale television the theater theatre time
    times top tour tower tv university valley video war week woman world year years your inc.
    february friday marina casino resort resorts plaza center centre mall lrb rrb lsb rsb super bowl
    cold great big hot little new old american bad good enterprises entertainment group productions
    pictures media network channel band romance heart christmas triangle
    """
)
